"""Forward processes, and the contract and helpers of solvers."""
