//! A browser without a window, as far as the console and a provider of identities can tell: it keeps cookies, follows
//! where it is sent, and knows which of them are for which site.

use std::collections::BTreeMap;

use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::Server;
use url::form_urlencoded;

/// Its cookies are those of the server; the provider of the tests has none.
pub(crate) struct Browser {
    pub(crate) root: String,
    pub(crate) cookies: BTreeMap<String, String>,
    /// Sent with every request, as a proxy in front would.
    pub(crate) headers: Vec<(String, String)>,
}

/// What a cookie was set with.
pub(crate) fn set_cookie<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    let all = reply.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("text"));
    all.into_iter().find(|text| text.split('=').next() == Some(name))
}

/// Where a redirect leads.
#[track_caller]
pub(crate) fn leads(reply: &Reply) -> String {
    assert!([302, 303].contains(&reply.status), "{reply:?}");
    reply.header("location").expect("a place").to_owned()
}

impl Browser {
    pub(crate) fn new(server: &Server) -> Self {
        Self::at(&server.url)
    }

    /// In front of one of its listeners.
    pub(crate) fn at(url: &str) -> Self {
        let (cookies, headers) = (BTreeMap::new(), Vec::new());
        Self { root: url.to_owned(), cookies, headers }
    }

    fn keep(&mut self, reply: &Reply) {
        for value in reply.headers.get_all("set-cookie") {
            let text = value.to_str().expect("text");
            let (pair, rest) = text.split_once(';').expect("attributes");
            let (name, value) = pair.split_once('=').expect("a name");
            match rest.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
    }

    fn send(&mut self, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> Reply {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = call(&self.root, method, path).headers(more);
        if !cookies.is_empty() {
            request = request.header("cookie", &cookies.join("; "));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let reply = request.raw(body).send();
        self.keep(&reply);
        reply
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    /// Sends a form from a page of the console.
    pub(crate) fn post(&mut self, path: &str, from: &str, fields: &[(&str, &str)]) -> Reply {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let referer = format!("{}{from}", self.root);
        let root = self.root.clone();
        let more = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", root.as_str()),
            ("referer", referer.as_str()),
        ];
        self.send("POST", path, &more, &form)
    }

    /// A token for the forms of this session.
    #[track_caller]
    pub(crate) fn token(&mut self) -> String {
        let page = self.get("/console/audit").with(200).body;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split('"').next().expect("a token").to_owned()
    }

    /// Goes to the provider, and comes back to where it sends one; not yet through that door.
    #[track_caller]
    pub(crate) fn visit_provider(&mut self, next: &str) -> String {
        let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let begun = self.get(&format!("/console/login/oidc?next={next}"));
        let provider = leads(&begun);
        let (root, path) = provider.split_at(provider.find("/authorize").expect("a login page"));
        let back = leads(&call(root, "GET", path).send());
        back.strip_prefix(&self.root).expect("back to us").to_owned()
    }

    /// The whole way.
    #[track_caller]
    pub(crate) fn log_in(&mut self, next: &str) -> Reply {
        let back = self.visit_provider(next);
        self.get(&back)
    }
}
