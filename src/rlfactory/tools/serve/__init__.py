"""`rlfactory serve`: an HTTP server that scores samples with a reward."""
