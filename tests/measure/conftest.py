from hypothesis import settings

# The time that an example takes says more about what else runs on the machine than about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
