//! What the API server asks a node for: paths and queries of the kubelet API.
//!
//! Every part is escaped here, so that no name of an object can add a segment or a parameter. The
//! client's own query never passes through.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use waybill_api::{
    exec::{ExecVar, PodExecOptions},
    trace::{TRACE_PATH, TraceOptions},
};

use super::options::{PodAttachOptions, PodLogOptions, PodPortForwardOptions};

/// Path and query of a request to a node, and the token that goes with an exec. The query of an exec
/// may hold values of variables, so there is no `Debug` and no `Display`.
pub(crate) struct NodeTarget {
    text: String,
    session: Option<HeaderValue>,
    is_trace: bool,
}

impl NodeTarget {
    /// An exec session, with `server_env` after the caller's variables.
    pub(crate) fn exec(
        pod: PodPath<'_>,
        container: &str,
        options: &PodExecOptions,
        server_env: &[ExecVar],
    ) -> Self {
        let path = pod.under("exec", Some(container));
        Self::new(format!("{path}?{}", options.to_kubelet_query(server_env)))
    }

    /// The streams of a running container.
    pub(crate) fn attach(pod: PodPath<'_>, container: &str, options: &PodAttachOptions) -> Self {
        let flags = [
            ("input", options.stdin),
            ("output", options.stdout),
            ("error", options.stderr),
            ("tty", options.tty),
        ];
        let set = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, "1".to_owned()));
        Self::new(with_query(pod.under("attach", Some(container)), set))
    }

    /// Ports of a pod.
    pub(crate) fn port_forward(pod: PodPath<'_>, options: &PodPortForwardOptions) -> Self {
        let ports = options.ports.iter().map(|port| ("port", port.to_string()));
        Self::new(with_query(pod.under("portForward", None), ports))
    }

    /// The log of a container.
    pub(crate) fn container_logs(
        pod: PodPath<'_>,
        container: &str,
        options: &PodLogOptions,
    ) -> Self {
        let path = pod.under("containerLogs", Some(container));
        Self::new(with_query(path, options.kubelet_parameters()))
    }

    /// The record of what ran in the node's sessions.
    pub(crate) fn trace(options: &TraceOptions) -> Self {
        Self { is_trace: true, ..Self::new(format!("{TRACE_PATH}?{}", options.to_query())) }
    }

    /// Any path of the node, which begins with a slash, as the client escaped it.
    pub(crate) fn raw(path_and_query: &str) -> Self {
        Self::new(path_and_query.to_owned())
    }

    /// The same with a token that nodes ask for; see [`super::session`].
    pub(crate) fn with_session(self, token: HeaderValue) -> Self {
        Self { session: Some(token), ..self }
    }

    /// The text as it goes on the wire; it must not be logged.
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }

    /// The part that names no value.
    pub(crate) fn path(&self) -> &str {
        self.text.split_once('?').map_or(self.text.as_str(), |(path, _)| path)
    }

    /// The part that may hold values.
    pub(super) fn query(&self) -> &str {
        self.text.split_once('?').map_or("", |(_, query)| query)
    }

    /// What [`NodeTarget::with_session`] added.
    pub(super) fn session(&self) -> Option<&HeaderValue> {
        self.session.as_ref()
    }

    /// Whether the node has to know that it is asked for its record, and not for a path that a client chose.
    pub(super) fn is_trace(&self) -> bool {
        self.is_trace
    }

    fn new(text: String) -> Self {
        Self { text, session: None, is_trace: false }
    }
}

/// A pod, as the kubelet's paths name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodPath<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl PodPath<'_> {
    fn under(self, verb: &str, container: Option<&str>) -> String {
        let mut path = format!("/{verb}");
        for segment in [self.namespace, self.name].into_iter().chain(container) {
            path.push('/');
            path.extend(utf8_percent_encode(segment, ESCAPED));
        }
        path
    }
}

/// All but the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn with_query(
    mut target: String,
    parameters: impl IntoIterator<Item = (&'static str, String)>,
) -> String {
    for (index, (name, value)) in parameters.into_iter().enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        target.extend(utf8_percent_encode(&value, ESCAPED));
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: PodPath<'_> = PodPath { namespace: "default", name: "web" };

    #[test]
    fn names_cannot_leave_their_segment() {
        let pod = PodPath { namespace: "a/b", name: "c?d#e" };
        let options = PodExecOptions { command: vec!["a&b".to_owned()], ..Default::default() };
        assert_eq!(
            NodeTarget::exec(pod, "x%/é", &options, &[]).expose(),
            "/exec/a%2Fb/c%3Fd%23e/x%25%2F%C3%A9?command=a%26b"
        );
    }

    #[test]
    fn attach_and_port_forward_use_the_names_of_the_kubelet() {
        let options = PodAttachOptions::from_query("stdin=true&stdout=1&tty=true&stderr=false");
        assert_eq!(
            NodeTarget::attach(POD, "main", &options.unwrap()).expose(),
            "/attach/default/web/main?input=1&output=1&tty=1"
        );
        let options = PodPortForwardOptions::from_query("ports=80&ports=443").unwrap();
        let target = NodeTarget::port_forward(POD, &options);
        assert_eq!(target.expose(), "/portForward/default/web?port=80&port=443");
        assert_eq!(target.path(), "/portForward/default/web");
        let none = PodPortForwardOptions::default();
        assert_eq!(NodeTarget::port_forward(POD, &none).expose(), "/portForward/default/web");
    }

    #[test]
    fn logs_carry_every_option_that_is_set() {
        let query = "container=main&follow=true&previous=1&timestamps=true&sinceSeconds=5\
            &tailLines=0&limitBytes=10&unknown=x";
        let options = PodLogOptions::from_query(query).unwrap();
        assert_eq!(
            NodeTarget::container_logs(POD, "main", &options).expose(),
            "/containerLogs/default/web/main?follow=true&previous=true&timestamps=true\
             &sinceSeconds=5&tailLines=0&limitBytes=10"
        );
        let query = "sinceTime=2026-08-01T10:00:00%2B02:00&stream=Stdout";
        let options = PodLogOptions::from_query(query).unwrap();
        assert_eq!(
            NodeTarget::container_logs(POD, "main", &options).expose(),
            "/containerLogs/default/web/main?sinceTime=2026-08-01T08%3A00%3A00Z&stream=Stdout"
        );
    }
}
