"""Files in object stores: `s3://bucket/data-dir/orders-0`.

store    one store: requests, retries, errors, listings
ranges   a file that is read by ranges, several of them ahead of the reader
path     a URL as a path that lists and opens itself; a file of an export, which appears whole

A path of a store opens itself (`kseg.files.io.Elsewhere`), so everything above reads it as it reads
a file of this machine. obstore speaks with S3, Google's and Microsoft's stores and with web
servers, fsspec with all others; the extra `[cloud]` brings both. Nothing here changes a log.

Credentials come from the environment, or from the files of the provider (for S3
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL`, `~/.aws/credentials`, or the role
of the machine). A URL with a user, a password or a query is refused, since paths appear in messages
and plans. Errors have the name of the object, a status and the store's own word for it, and no part
of the request.
"""
