"""Typed values by schema: from payloads in bulk to Arrow columns.

    decoder         `Decoder`: what each format provides
    avro_schema     schemas of Avro, and questions about their types
    avro            Avro, with the writer's schema resolved to the reader's
    protobuf        messages of a `.proto` text
    json_struct     JSON, whose type a JSON Schema, the caller or a sample gives
    payloads        the schema that each names; most are decoded at once, the others one by one
    registry        `decodings`: the schema of a column, and its values

Payloads and schemas are hostile bytes: a payload that does not decode is null with its reason, a
schema that cannot be taken is a typed error. Nothing that a schema names is opened.
"""
