"""Does a simulator give a policy what its training set gave, and do to its actions what the recording did?"""
