"""Clients of remote rewards: retries, the protocol of `rlfactory serve`, OpenAI's protocol."""
