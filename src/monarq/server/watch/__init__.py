"""What the dashboard is fed with: figures of the store, read by one for all who look."""
