"""Jobs: items whose payload says what a worker runs, and the workers that run them."""
