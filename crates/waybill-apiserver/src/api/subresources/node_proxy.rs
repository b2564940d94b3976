//! `nodes/proxy`: a path of a node that can be read, for those who may read all of it.

use http::Request;
use hyper::body::Incoming;
use waybill_api::status::Status;
use waybill_stream::long_target;

use crate::{
    api::{Api, Context, Handled},
    proxy::{options::NodeProxyOptions, target::NodeTarget},
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn node_proxy(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        let path = request.uri().path();
        // Three segments of ours and the node's name come first: `/api/v1/nodes/NAME/proxy`.
        let path = path.match_indices('/').nth(5).and_then(|(at, _)| path.get(at..));
        let options = NodeProxyOptions { path: path.unwrap_or("/").to_owned() };
        let options = self.admit_connect(route, &mut context, options).await?;
        let asked = AskedNode::parse(&route.name);
        self.reader.get(&ResourceRoute::to(route.resource, "", asked.name))?;
        let node = self.node_address(asked.name)?;
        asked.check(node.port())?;
        let target = match long_target::query(&request) {
            "" => NodeTarget::raw(&options.path),
            query => NodeTarget::raw(&format!("{}?{query}", options.path)),
        };
        Ok(Handled::PassedOn(self.proxy.get(&node, &target).await))
    }
}

/// A node as a path names it: `NAME`, `NAME:PORT` or `https:NAME:PORT`.
#[derive(Debug, PartialEq, Eq)]
struct AskedNode<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> AskedNode<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(':');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(name), Some(port), None, _) => Self { scheme: "", name, port },
            (Some(scheme), Some(name), Some(port), None) => Self { scheme, name, port },
            _ => Self { scheme: "", name: text, port: "" },
        }
    }

    /// Only the node's agent is reached in this way: whoever may ask agents need not reach whatever else
    /// listens on a node, and nothing there knows us.
    fn check(&self, agent: u16) -> Result<(), Status> {
        let is_agent = self.port.is_empty() || self.port.parse() == Ok(agent);
        if is_agent && matches!(self.scheme, "" | "https") {
            return Ok(());
        }
        Err(Status::bad_request(format!(
            "of node {} only the agent on port {agent} can be asked, over https",
            self.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_name_the_port_of_the_agent_and_no_other() {
        let check = |text: &str, name: &str, passes: bool| {
            let asked = AskedNode::parse(text);
            assert_eq!((asked.name, asked.check(10_250).is_ok()), (name, passes), "{text}");
        };
        check("n", "n", true);
        check("n:10250", "n", true);
        check("https:n:10250", "n", true);
        check("https:n:", "n", true);
        check("http:n:10250", "n", false);
        check("n:6443", "n", false);
        check("n:https", "n", false);
        check("n:010250", "n", true);
        check("a:b:c:d", "a:b:c:d", true);
    }
}
