# How jobs end with Snakemake, and what a killed call leaves to the next (refblend.lifecycle.supervision).
# `output` itself is a name of Snakemake's.
from refblend.lifecycle import output as process_output, supervision

# `make study | tee log` and Ctrl-C: the jobs are stopped, not failed.
process_output.outlast_readers()

# Neither in a dry run, which Snakemake knows of only later, nor in the calls by which jobs run, on
# other machines too.
dry_run = any(
    re.fullmatch(r"-[a-zA-Z]*n[a-zA-Z]*|--dry-?run", word) for word in sys.argv
)
if workflow.is_main_process and not dry_run:
    try:
        supervision.release_stale_locks(Path.cwd(), logger.warning)
    except RefblendError as error:
        raise WorkflowError(str(error)) from None


# Snakemake records the settings of a failed job, too. The next call would then take what an earlier
# one made with other settings for current, so each output keeps the record that it had.
recorded = {}


onstart:
    supervision.pass_on_sigterm()
    supervision.follow_dvc()
    recorded.update(
        (file, workflow.persistence.metadata(file))
        for job in workflow.dag.needrun_jobs()
        for file in job.output
    )


onerror:
    for file in [
        file for job in workflow.dag.needrun_jobs() for file in job.output
    ]:
        if recorded.get(file) is None:
            workflow.persistence.cleanup_metadata(file)
        else:
            workflow.persistence._write_record(str(file), recorded[file])
    if supervision.stopping.is_set():
        logger.error(
            "Stopped by SIGTERM, and the jobs with it: the same call resumes them."
        )
