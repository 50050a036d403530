"""`rlfactory inspect`: what training changed inside a language model, and in which part of it."""
