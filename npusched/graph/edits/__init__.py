"""Changes of a model that advice is about: each makes a file of a file, or None if it does not fit.

An edit says in its docstring whether results stay the same. Where weights would be trained or
ranges calibrated anew, the edited file has stand-ins of the right size: it is there to be planned.
"""
