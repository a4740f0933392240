"""The HTTP server: protocol, routes, authentication and the process around them."""
