//! One tab: goes to pages, runs code in them, has a keyboard and a mouse, takes pictures.

use std::{
    env, fs,
    path::Path,
    process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{Chromium, PATIENCE};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Notes what a page tried against its own policy.
const WATCH: &str = "window.violations = []; document.addEventListener('securitypolicyviolation', \
                     (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));";

/// A tab of a browser.
#[derive(Debug)]
pub struct Tab {
    browser: Arc<Chromium>,
    session: String,
}

impl Tab {
    pub(super) fn new(browser: Arc<Chromium>, session: String, width: u32, height: u32) -> Self {
        let tab = Self { browser, session };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), &json!({}));
        }
        tab.call("Page.addScriptToEvaluateOnNewDocument", &json!({"source": WATCH}));
        tab.resize(width, height);
        tab
    }

    /// Gives the tab another size.
    pub fn resize(&self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// What the person prefers, as a page can ask for it.
    pub fn prefer(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Cuts the network off, or back on.
    pub fn set_offline(&self, offline: bool) {
        let state = json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.call("Network.emulateNetworkConditions", &state);
    }

    /// Goes to an address and waits until it is loaded.
    #[track_caller]
    pub fn go(&self, address: &str) {
        let before = self.browser.messages().count();
        let gone = self.call("Page.navigate", &json!({"url": address}));
        assert!(gone["errorText"].is_null(), "{address}: {}", gone["errorText"]);
        // The same document with another fragment is not loaded again.
        if gone["loaderId"].is_null() {
            return;
        }
        let loaded = |event: &Value| {
            event["sessionId"] == *self.session && event["method"] == "Page.loadEventFired"
        };
        let event = self.browser.messages().wait_for(before, PATIENCE, loaded);
        assert!(event.is_some(), "{address} does not load");
    }

    /// Runs an expression in the page, waits for a promise, and returns the value.
    #[track_caller]
    pub fn evaluate(&self, expression: &str) -> Value {
        let code = json!({"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true});
        let answer = self.call("Runtime.evaluate", &code);
        let fault = &answer["exceptionDetails"];
        assert!(
            fault.is_null(),
            "{expression}: {} {}",
            fault["text"],
            fault["exception"]["description"]
        );
        answer["result"]["value"].clone()
    }

    /// The text of an expression's value.
    #[track_caller]
    pub fn text(&self, expression: &str) -> String {
        let value = self.evaluate(expression);
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    }

    /// Waits until an expression is true; it may fail before.
    #[track_caller]
    pub fn wait_until(&self, condition: &str) {
        let start = Instant::now();
        let guarded = format!(
            "(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"
        );
        while self.evaluate(&guarded) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "never so: {condition}\n{}", self.state());
            thread::sleep(LOOK);
        }
    }

    /// What helps to understand a failure.
    fn state(&self) -> String {
        let path = env::temp_dir().join(format!("waybill-page-{}.png", process::id()));
        self.picture(&path);
        let address = self.text("location.href");
        format!(
            "{address} is in {}; faults: {:?}; it shows: {}",
            path.display(),
            self.faults(),
            self.shown()
        )
    }

    /// What can be read on the page, shortened.
    pub fn shown(&self) -> String {
        self.text("document.body.innerText.slice(0, 600)")
    }

    /// Presses a key: a letter, or a name such as `Enter`.
    pub fn press(&self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            _ if key.chars().count() == 1 => key,
            _ => "",
        };
        let down = json!({"type": if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "key": key, "text": text, "unmodifiedText": text,
            "windowsVirtualKeyCode": code_of(key)});
        self.call("Input.dispatchKeyEvent", &down);
        self.call("Input.dispatchKeyEvent", &json!({"type": "keyUp", "key": key}));
    }

    /// Types text into whatever has the focus.
    pub fn type_text(&self, text: &str) {
        self.call("Input.insertText", &json!({"text": text}));
    }

    /// Clicks the middle of the first element that a selector finds.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let (x, y) = self.middle(selector);
        self.drag((x, y), (x, y));
    }

    /// The middle of the first element that a selector finds, once there is one.
    #[track_caller]
    pub fn middle(&self, selector: &str) -> (f64, f64) {
        let element = format!("document.querySelector({})", json!(selector));
        self.wait_until(&format!("{element}.getBoundingClientRect().width"));
        let place = self.evaluate(&format!("(() => {{ const box = {element}.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"));
        (place[0].as_f64().unwrap_or_default(), place[1].as_f64().unwrap_or_default())
    }

    /// Presses the mouse at one place and lets go at another.
    pub fn drag(&self, from: (f64, f64), to: (f64, f64)) {
        self.mouse("mouseMoved", from);
        self.mouse("mousePressed", from);
        if from != to {
            self.mouse("mouseMoved", ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0));
            self.mouse("mouseMoved", to);
        }
        self.mouse("mouseReleased", to);
    }

    /// Moves the mouse.
    pub fn hover(&self, to: (f64, f64)) {
        self.mouse("mouseMoved", to);
    }

    fn mouse(&self, kind: &str, (x, y): (f64, f64)) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        self.call(
            "Input.dispatchMouseEvent",
            &json!({"type": kind, "x": x, "y": y, "button": button, "clickCount": 1}),
        );
    }

    /// A picture of what can be seen, as PNG, or as WebP if the name of the file says so.
    pub fn picture(&self, path: &Path) {
        let form = if path.extension().is_some_and(|end| end == "webp") {
            json!({"format": "webp", "quality": 85})
        } else {
            json!({"format": "png"})
        };
        let shot = self.call("Page.captureScreenshot", &form);
        let bytes = BASE64_STANDARD.decode(shot["data"].as_str().unwrap_or_default());
        let bytes = bytes.expect("pictures are base64");
        fs::create_dir_all(path.parent().unwrap_or(path)).expect("the folder can be made");
        fs::write(path, bytes).expect("the picture can be written");
    }

    /// Everything that went wrong in the page so far: exceptions, errors in the log, attempts against its policy.
    pub fn faults(&self) -> Vec<String> {
        let messages = self.browser.messages();
        let thrown = messages.named(&self.session, "Runtime.exceptionThrown").into_iter();
        let thrown =
            thrown.map(|event| event["exceptionDetails"]["exception"]["description"].to_string());
        let logged = messages
            .named(&self.session, "Log.entryAdded")
            .into_iter()
            .map(|event| event["entry"].clone());
        let logged = logged
            .filter(|entry| entry["level"] == "error")
            .map(|entry| format!("{} {}", entry["text"], entry["url"]));
        let tried = self.evaluate("window.violations");
        let tried =
            tried.as_array().into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        thrown.chain(logged).chain(tried).collect()
    }

    /// The addresses of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        let events = self.browser.messages().named(&self.session, "Network.requestWillBeSent");
        events
            .iter()
            .filter_map(|event| event["request"]["url"].as_str().map(str::to_owned))
            .collect()
    }

    /// What assistive technology gets: role and name of each node that has both.
    pub fn accessible(&self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|node| node["ignored"] != json!(true));
        let word =
            |node: &Value, part: &str| node[part]["value"].as_str().unwrap_or_default().to_owned();
        nodes.map(|node| (word(node, "role"), word(node, "name"))).collect()
    }

    #[track_caller]
    fn call(&self, method: &str, parameters: &Value) -> Value {
        self.browser.call(Some(&self.session), method, parameters)
    }
}

/// What pages call `keyCode`, for keys that are no letters.
fn code_of(key: &str) -> u32 {
    match key {
        "Enter" => 13,
        "Escape" => 27,
        "PageUp" => 33,
        "PageDown" => 34,
        "End" => 35,
        "Home" => 36,
        "ArrowLeft" => 37,
        "ArrowUp" => 38,
        "ArrowRight" => 39,
        "ArrowDown" => 40,
        "Tab" => 9,
        _ => 0,
    }
}
