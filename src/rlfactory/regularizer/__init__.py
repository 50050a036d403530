"""Regularizers: penalties that keep the policy close to a reference policy."""
