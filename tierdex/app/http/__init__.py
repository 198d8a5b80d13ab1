"""The HTTP service: FastAPI routes with declared parameters and models, served by uvicorn.

::

    server         uvicorn: listens, stops in order
    connection     one caller's connection: the limits for which uvicorn has no setting
    middleware     request id, log line, metrics; admission; sizes and times of bodies
    security       the key's scope, a dependency of each route
    routes/        the work of each route, on an `Index`
    parameters, models, body, codecs/    the wire's forms; openapi.yaml is made of the models
    problems       every error as RFC 9457

In app only the commands `tierdex serve` and `put` import it.
"""
