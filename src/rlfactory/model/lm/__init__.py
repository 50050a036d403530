"""Language models of transformers: loading, sampling, log-probabilities, KV cache, critic."""
