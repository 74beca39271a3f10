"""Programs that a person or CI runs; their tests are short runs of them.

They kill what they start, put bugs into the sources, measure, or try other versions of Spark. CONTRIBUTING lists their
commands.
"""
