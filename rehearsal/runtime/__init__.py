"""Stand-ins for the runtimes' programs, `inference_demo` and `vllm serve`, where no accelerator is.

The stand-ins check their arguments, read their models and write the files of the real programs, in
the same places and forms. The content of these files is tiny and means nothing. The first line of
their output says that they are stand-ins.
"""
