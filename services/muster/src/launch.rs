//! Start of services: `muster dev`, `bbs`, `auctioneer`, `projector` and `rep`.

use std::process::ExitCode;

use clap::Subcommand;
use cli_base::failure::Failure;
use cli_base::options::{Global, LogFormat};
use cli_base::output;
#[cfg(feature = "all")]
use cli_base::output::Output;
use host::error::ServiceError;
#[cfg(feature = "all")]
use host::projector::ProjectorArgs;
use host::rep::RunOutcome;
use host::serve::{self, Nats, RepArgs};
#[cfg(feature = "all")]
use host::serve::{AuctioneerArgs, BbsArgs};
use host::supervision::Supervised;
use runtime::exit::Exit;
use runtime::stop::{self, Hangup};
use runtime::telemetry;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "all")]
use crate::dev::{self, Data, DevArgs};

/// Commands that start services.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Service {
    /// Run a whole cluster on this machine
    #[cfg(feature = "all")]
    Dev(DevArgs),
    /// Run a BBS, which decides and writes the log
    #[cfg(feature = "all")]
    Bbs(BbsArgs),
    /// Run an auctioneer, which places work on cells
    #[cfg(feature = "all")]
    Auctioneer(AuctioneerArgs),
    /// Run a rep, which runs the containers of a cell
    Rep(RepArgs),
    /// Run a projector, which keeps tables in a database
    #[cfg(feature = "all")]
    Projector(ProjectorArgs),
}

/// Runs a service until it is stopped.
pub(crate) fn run(service: Service, global: &Global) -> ExitCode {
    let (stopped, evacuated) = match &service {
        Service::Rep(args) => (args.stopped_status, args.evacuated_status),
        #[cfg(feature = "all")]
        Service::Dev(_) | Service::Bbs(_) | Service::Auctioneer(_) | Service::Projector(_) => {
            (Exit::Done as u8, Exit::Evacuated as u8)
        }
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

impl Service {
    /// Returns `true` for a command that runs a whole cluster. No single service represents its program.
    const fn is_cluster(&self) -> bool {
        match self {
            #[cfg(feature = "all")]
            Self::Dev(_) => true,
            #[cfg(feature = "all")]
            Self::Bbs(_) | Self::Auctioneer(_) | Self::Projector(_) => false,
            Self::Rep(_) => false,
        }
    }
}

fn start(service: Service, global: &Global) -> Result<Exit, Failure> {
    let default = if service.is_cluster() { "warn" } else { "info,async_nats=warn" };
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

async fn serve(service: Service, global: &Global) -> Result<Exit, Failure> {
    // The containers of a local cluster must not outlive it. So the closing of its terminal stops it.
    let hangup = if service.is_cluster() { Hangup::Stop } else { Hangup::Default };
    let stop = stop::on_signal(hangup).map_err(|error| {
        Failure::new(Exit::Failed, "Signal", format!("can't install signal handlers: {error}"))
    })?;
    let supervised = if service.is_cluster() { None } else { Supervised::from_environment(stop.clone()) };
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
        #[cfg(feature = "all")]
        Service::Dev(args) => run_dev(args, global, stop).await?,
        #[cfg(feature = "all")]
        Service::Bbs(args) => {
            let watching = args.metrics.open(global.tls.tls_cert.clone()).await?.with_supervisor(supervised);
            if let Some(nats) = wait_for_server(global, &stop).await? {
                Box::pin(serve::run_bbs(&nats, &args, watching, stop)).await?;
            }
        }
        #[cfg(feature = "all")]
        Service::Auctioneer(args) => {
            let watching = args.metrics.open(global.tls.tls_cert.clone()).await?.with_supervisor(supervised);
            if let Some(nats) = wait_for_server(global, &stop).await? {
                serve::run_auctioneer(&nats, &args, watching, stop).await?;
            }
        }
        #[cfg(feature = "all")]
        Service::Projector(args) => {
            let watching = args.metrics.open(global.tls.tls_cert.clone()).await?.with_supervisor(supervised);
            if let Some(nats) = wait_for_server(global, &stop).await? {
                host::projector::run_projector(&nats, args, watching, stop).await?;
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

#[cfg(feature = "all")]
async fn run_dev(args: DevArgs, global: &Global, stop: CancellationToken) -> Result<(), Failure> {
    let data = match global.data.clone() {
        Some(folder) => Data::Kept(folder),
        None => Data::Scratch(client::default_folder()),
    };
    Box::pin(dev::run(args, data, global.socket.clone(), Output::new(global), stop)).await
}

/// Returns the NATS servers once one of them is reachable. `None` if `stop` was cancelled first.
async fn wait_for_server(global: &Global, stop: &CancellationToken) -> Result<Option<Nats>, ServiceError> {
    let nats = cli_base::connect::nats(global).ok_or(ServiceError::NoServer)?;
    Ok(nats.wait_for_server(stop).await?.then_some(nats))
}
