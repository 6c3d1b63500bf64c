"""The commands: arguments, options and help of each verb.

    look     verbs that look at logs, and those about kseg itself
    move     records out of logs and into logs
    repair   logs that are damaged or whose indexes do not fit
    clean    retention and compaction
    spark    the jobs of `kseg spark`

These modules load click and nothing heavy, so that help, completion and a usage error are quick.
The function that carries out a verb is in `kseg.cli.<verb>`, or in the module that `home` names;
`kseg.cli.main.verb` imports it for the call.
"""
