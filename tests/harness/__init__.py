"""Programs that are run by hand or by CI, and whose tests are short runs of themselves.

They kill what they start, put bugs into the sources, measure, or try other versions of Spark; CONTRIBUTING lists their
commands.
"""
