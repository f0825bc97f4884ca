# The service in a container: docker build -t elmore . && docker run --rm -p 127.0.0.1:8000:8000 elmore
# Plain steps with relative paths: .ci/image.py runs them one by one without Docker.

# The complete image has a compiler, so that the wheel has the C extension.
FROM python:3.13 AS build
WORKDIR /build
COPY pyproject.toml setup.py README.md LICENSE ./
COPY native native
COPY src src
ENV ELMORE_NATIVE=require
RUN pip wheel --no-cache-dir --no-deps --wheel-dir wheels .

FROM python:3.13-slim
WORKDIR /app
COPY --from=build /build/wheels wheels
RUN pip install --no-cache-dir "elmore[serve] @ file://$PWD/$(ls wheels/*.whl)" && rm -r wheels
USER 1000:1000
ENV ELMORE_NATIVE=require ELMORE_SERVE_HOST=0.0.0.0 ELMORE_SERVE_PORT=8000 ELMORE_SERVE_ACCESS_LOG=1
EXPOSE 8000
HEALTHCHECK --start-period=10s CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['ELMORE_SERVE_PORT'] + '/ready')"]
CMD ["elmore", "serve"]
