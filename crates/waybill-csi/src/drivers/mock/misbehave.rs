//! What a driver should not do.

use std::future::pending;

use tokio::time::sleep;
use tonic::{Code, Status};
use waybill_proto::csi::EnvVarResult;

use super::script::{Behaviour, FailedCall, Time};

/// Before a call is looked at.
pub(super) async fn before(behaviour: &Behaviour) -> Result<(), Status> {
    match behaviour {
        Behaviour::Delay(Time(delay)) => sleep(*delay).await,
        Behaviour::Hang => pending().await,
        Behaviour::Crash => std::process::abort(),
        Behaviour::Status(FailedCall { code, message }) => {
            return Err(Status::new(Code::from(*code), message));
        }
        Behaviour::Answer
        | Behaviour::WrongOrder
        | Behaviour::MissingResult
        | Behaviour::ExtraResult
        | Behaviour::WrongName
        | Behaviour::ValueAndError
        | Behaviour::Nul
        | Behaviour::NotUtf8
        | Behaviour::Oversize(_)
        | Behaviour::Results(_) => {}
    }
    Ok(())
}

/// Before a good answer goes out.
pub(super) fn after(behaviour: &Behaviour, results: &mut Vec<EnvVarResult>) {
    let Some(first) = results.first_mut() else { return };
    match behaviour {
        Behaviour::WrongOrder => results.reverse(),
        Behaviour::MissingResult => drop(results.pop()),
        Behaviour::ExtraResult => results.extend(results.last().cloned()),
        Behaviour::WrongName => first.name.push_str("_OTHER"),
        Behaviour::ValueAndError => "both".clone_into(&mut first.error),
        Behaviour::Nul => first.value.push(0),
        Behaviour::NotUtf8 => first.value.push(0xff),
        Behaviour::Oversize(bytes) => first.value = vec![b'x'; *bytes],
        Behaviour::Results(count) => {
            let filler = first.clone();
            results.resize(*count, filler);
        }
        Behaviour::Answer
        | Behaviour::Delay(_)
        | Behaviour::Hang
        | Behaviour::Crash
        | Behaviour::Status(_) => {}
    }
}
