"""The commands: the arguments, options and help of each verb, a module each.

They load click and nothing heavy, so that help, completion and a usage error are quick. What a verb
does stands in `kseg.cli.<verb>`, in a function of its name, and is loaded when it is called.
"""
