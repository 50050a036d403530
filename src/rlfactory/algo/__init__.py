"""How rewards become gradients."""
