"""What keeps the policy near another one."""
