# step0-wandb alone, with pinned versions, run by a user without rights.
#   docker build -t step0-wandb .
#   docker run --rm -e WANDB_API_KEY step0-wandb sync my-team/my-project
FROM python:3.12-slim
COPY . /src
RUN cd /src && python3 -m venv .venv && .venv/bin/pip install -q -c requirements.lock . && .venv/bin/step0-wandb --version
RUN useradd --create-home step0
USER step0
WORKDIR /work
ENV PATH=/src/.venv/bin:$PATH
ENTRYPOINT ["step0-wandb"]
CMD ["--help"]
