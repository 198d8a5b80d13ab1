"""The HTTP service: FastAPI routes with declared parameters and models, served by uvicorn.

::

    server         uvicorn: listens, stops in order
    connection     one caller's connection: the limits that uvicorn has no setting for
    middleware     request id, log line, metrics; who may be here at all; sizes and times of bodies
    security       the key's scope, a dependency of each route
    routes/        what each route does, on an `Index`
    parameters, models, body, codecs/    from and to the wire; models also make openapi.yaml
    problems       every error as RFC 9457

Nothing else in app imports it but the command `tierdex serve`.
"""
