//! Start of services: `muster dev`, `bbs`, `auctioneer`, `projector`, `rep` and `bench`.

use std::process::ExitCode;
use std::sync::Arc;

use bus::nats::ConnectError;
use clap::Subcommand;
use client::Login;
use runtime::stop::{self, Hangup};
use runtime::telemetry;
use tokio_util::sync::CancellationToken;

use crate::bench::{self, BenchArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::Output;
use crate::cli::{Global, LogFormat, output};
use crate::dev::{self, Data, DevArgs};
use crate::error::{ServiceError, chain};
use crate::serve::{self, AuctioneerArgs, BbsArgs, Nats, ProjectorArgs, RepArgs};
use crate::supervision::Supervised;
use crate::wire::rep::RunOutcome;

/// Commands that start services.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Service {
    /// Run a whole cluster on this machine
    Dev(DevArgs),
    /// Run a BBS, which decides and writes the log
    Bbs(BbsArgs),
    /// Run an auctioneer, which places work on cells
    Auctioneer(AuctioneerArgs),
    /// Run a rep, which runs the containers of a cell
    Rep(RepArgs),
    /// Run a projector, which keeps tables in a database
    Projector(ProjectorArgs),
    /// Measure the whole system: with containers in memory or, for updates, with real ones
    Bench(BenchArgs),
}

/// Runs a service until it is stopped.
pub(crate) fn run(service: Service, global: &Global) -> ExitCode {
    let (stopped, evacuated) = match &service {
        Service::Rep(args) => (args.stopped_status, args.evacuated_status),
        Service::Dev(_)
        | Service::Bbs(_)
        | Service::Auctioneer(_)
        | Service::Projector(_)
        | Service::Bench(_) => (Exit::Done as u8, Exit::Evacuated as u8),
    };
    match start(service, global) {
        Ok(Exit::Evacuated) => ExitCode::from(evacuated),
        Ok(Exit::Done) => ExitCode::from(stopped),
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => {
            if !logged_as_json(&failure, global) {
                output::report_failure(&failure, global);
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Logs the reason why a service exits, if the log format is JSON. Returns `false` for other formats.
fn logged_as_json(failure: &Failure, global: &Global) -> bool {
    let is_json = matches!(global.log_format, LogFormat::Json) && tracing::enabled!(tracing::Level::ERROR);
    if is_json {
        let Failure { exit, code, message, advice, .. } = failure;
        let (status, advice) = (*exit as u8, advice.join("; "));
        tracing::error!(status, code, advice, "the program exits: {message}");
    }
    is_json
}

fn start(service: Service, global: &Global) -> Result<Exit, Failure> {
    let default = match service {
        Service::Dev(_) | Service::Bench(_) => "warn",
        Service::Bbs(_) | Service::Auctioneer(_) | Service::Rep(_) | Service::Projector(_) => {
            "info,async_nats=warn"
        }
    };
    telemetry::start(global.log.as_deref(), default, global.log_format.into())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "Start", format!("can't start: {error}")))?;
    let result = runtime.block_on(Box::pin(serve(service, global)));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        let why = chain(&error);
        match error {
            ServiceError::NoServer | ServiceError::Connect(ConnectError::Unreachable { .. }) => Self::new(
                Exit::Unreachable,
                "Unreachable",
                why,
            )
            .advise(
                "start a NATS server (nats-server -c deploy/nats.conf), or run a local cluster: muster dev",
            ),
            ServiceError::Connect(
                ConnectError::Refused { .. } | ConnectError::File { .. } | ConnectError::Settings(_),
            )
            | ServiceError::Bus(_)
            | ServiceError::Journal(_)
            | ServiceError::Home(_)
            | ServiceError::Containers(_)
            | ServiceError::Ended(_)
            | ServiceError::Panicked(_)
            | ServiceError::AllEnded
            | ServiceError::Randomness(_)
            | ServiceError::Program(_)
            | ServiceError::Keys(_)
            | ServiceError::Metrics(_)
            | ServiceError::Attributes(_)
            | ServiceError::Name(_)
            | ServiceError::Bench(_) => Self::new(Exit::Failed, "Failed", why),
        }
    }
}

async fn serve(service: Service, global: &Global) -> Result<Exit, Failure> {
    let hangup = match service {
        // The containers must not outlive the cluster. So the closing of its terminal stops the cluster.
        Service::Dev(_) => Hangup::Stop,
        Service::Bench(_)
        | Service::Bbs(_)
        | Service::Auctioneer(_)
        | Service::Rep(_)
        | Service::Projector(_) => Hangup::Default,
    };
    let stop = stop::on_signal(hangup).map_err(|error| {
        Failure::new(Exit::Failed, "Signal", format!("can't install signal handlers: {error}"))
    })?;
    let supervised = match service {
        // These commands run several services. No single service represents the whole program.
        Service::Dev(_) | Service::Bench(_) => None,
        Service::Bbs(_) | Service::Auctioneer(_) | Service::Rep(_) | Service::Projector(_) => {
            Supervised::from_environment(stop.clone())
        }
    };
    let done = Box::pin(run_service(service, global, stop, supervised.clone())).await;
    if let Some(supervised) = supervised {
        supervised.report_stopping();
    }
    done
}

async fn run_service(
    service: Service,
    global: &Global,
    stop: CancellationToken,
    supervised: Option<Supervised>,
) -> Result<Exit, Failure> {
    match service {
        Service::Dev(args) => run_dev(args, global, stop).await?,
        Service::Bench(args) => {
            let outcome = bench::run(nats(global), args, stop).await?;
            output::write_line(&outcome.text)?;
            if let Some(failure) = outcome.failure {
                return Err(ServiceError::Bench(failure).into());
            }
        }
        Service::Bbs(args) => {
            let watching = args.metrics.open(global.tls.tls_cert.clone()).await?.with_supervisor(supervised);
            if let Some(nats) = wait_for_server(global, &stop).await? {
                Box::pin(serve::run_bbs(&nats, &args, watching, stop)).await?;
            }
        }
        Service::Auctioneer(args) => {
            let watching = args.metrics.open(global.tls.tls_cert.clone()).await?.with_supervisor(supervised);
            if let Some(nats) = wait_for_server(global, &stop).await? {
                serve::run_auctioneer(&nats, &args, watching, stop).await?;
            }
        }
        Service::Projector(args) => {
            let watching = args.metrics.open(global.tls.tls_cert.clone()).await?.with_supervisor(supervised);
            if let Some(nats) = wait_for_server(global, &stop).await? {
                serve::run_projector(&nats, args, watching, stop).await?;
            }
        }
        Service::Rep(args) => {
            let data = global.data.clone();
            let data =
                data.ok_or_else(|| Failure::usage("no data folder given: a rep requires --data DIR"))?;
            let watching = args.metrics.open(global.tls.tls_cert.clone()).await?.with_supervisor(supervised);
            if let Some(nats) = wait_for_server(global, &stop).await?
                && serve::run_rep(&nats, data, &args, watching, stop).await? == RunOutcome::Evacuated
            {
                return Ok(Exit::Evacuated);
            }
        }
    }
    Ok(Exit::Done)
}

async fn run_dev(args: DevArgs, global: &Global, stop: CancellationToken) -> Result<(), Failure> {
    let data = match global.data.clone() {
        Some(folder) => Data::Kept(folder),
        None => Data::Scratch(client::default_folder()),
    };
    Box::pin(dev::run(args, data, global.socket.clone(), Output::new(global), stop)).await
}

/// Returns the NATS servers and credentials from the options. `None` if no server is named.
pub(crate) fn nats(global: &Global) -> Option<Nats> {
    let urls = global.nats.as_ref()?;
    let urls = urls.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect();
    let login = global.creds.clone().map_or(Login::Anonymous, Login::Credentials);
    Some(Nats { urls, login, tls: global.tls.nats_tls(), refused: Arc::default() })
}

/// Returns the NATS servers once one of them is reachable. `None` if `stop` was cancelled first.
async fn wait_for_server(global: &Global, stop: &CancellationToken) -> Result<Option<Nats>, ServiceError> {
    let nats = nats(global).ok_or(ServiceError::NoServer)?;
    Ok(nats.wait_for_server(stop).await?.then_some(nats))
}
