"""Many runs as one table: what a paper reports, what was run of it, and what came out."""
