# How jobs end with Snakemake, and what a killed call leaves to the next (refblend.lifecycle.supervision).
# Not under its own name, which is one of Snakemake's.
from refblend.lifecycle import output as process_output, supervision

# `make study | tee log` and Ctrl-C: the jobs are stopped, not failed.
process_output.outlast_readers()

try:
    # Jobs on other machines call Snakemake too, which has nothing to say.
    say = logger.warning if workflow.is_main_process else logger.debug
    supervision.release_stale_locks(Path.cwd(), say)
except RefblendError as error:
    raise WorkflowError(str(error)) from None


onstart:
    supervision.pass_on_sigterm()
    supervision.follow_dvc()


onerror:
    if supervision.stopping.is_set():
        logger.error(
            "Stopped by SIGTERM, and the jobs with it: the same call resumes them."
        )
