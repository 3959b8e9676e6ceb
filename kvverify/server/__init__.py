"""Running servers over HTTP: whether a prompt cache changes the server's own greedy answers in a second turn."""
