"""Looking inside a tuned language model: what changed, and which part of the network did it."""
