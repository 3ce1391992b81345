"""The flags that commands on a policy or a backbone share, and what is loaded and profiled by them."""
