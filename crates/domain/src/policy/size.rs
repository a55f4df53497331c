//! How large a policy may be that is about to be written down.
//!
//! Policies are kept in memory on every node, and templates are filled in for every attempt. What was
//! written down before there were such limits goes on.

use serde_json::Value;

use super::{Policy, PolicyError, refuse};
use crate::Template;
use crate::limits::{
    AUTHS_MAX, LOG_TEMPLATE_BYTES_MAX, PARAMETERS_MAX, POINTER_BYTES_MAX, POLICY_BYTES_MAX,
    TEMPLATE_BYTES_MAX,
};

impl Policy {
    /// Checks a policy that `changes` make of another one.
    pub fn check_size(&self, changes: &Value) -> Result<(), PolicyError> {
        let bytes = match changes {
            Value::Null => 0,
            changes => serde_json::to_vec(changes).map_or(usize::MAX, |text| text.len()),
        };
        if bytes > POLICY_BYTES_MAX {
            return refuse("policy", format!("must be at most {POLICY_BYTES_MAX} bytes of JSON"));
        }
        for (path, template) in self.templates() {
            short(&path, template.source(), TEMPLATE_BYTES_MAX)?;
        }
        for (name, template) in &self.request.headers {
            short(&format!("request.headers.{name}"), template.source(), TEMPLATE_BYTES_MAX)?;
        }
        let log = &self.log;
        let lines = [("log.before", &log.before), ("log.failure", &log.failure)];
        let lines = lines.into_iter().filter_map(|(path, line)| Some((path, line.as_ref()?)));
        for (path, template) in lines.chain(log.fields.values().map(|field| ("log.fields", field)))
        {
            short(path, Template::source(template), LOG_TEMPLATE_BYTES_MAX)?;
        }
        few("auth", self.auth.len(), AUTHS_MAX)?;
        few("request.query", self.request.query.len(), PARAMETERS_MAX)?;
        few("request.families", self.request.families.len(), PARAMETERS_MAX)?;
        if let Some(rule) = &self.permanent.body {
            few("permanent.body.fields", rule.fields.len(), PARAMETERS_MAX)?;
        }
        if let Some(expect) = self.gate.as_ref().and_then(|gate| gate.expect.as_ref()) {
            short("gate.expect.pointer", &expect.pointer, POINTER_BYTES_MAX)?;
            short("gate.expect.equals", &expect.equals.to_string(), POINTER_BYTES_MAX)?;
        }
        Ok(())
    }
}

fn short(path: &str, text: &str, max: usize) -> Result<(), PolicyError> {
    if text.len() > max {
        return refuse(path, format!("must be at most {max} bytes, not {}", text.len()));
    }
    Ok(())
}

fn few(path: &str, count: usize, max: usize) -> Result<(), PolicyError> {
    if count > max {
        return refuse(path, format!("must be at most {max}, not {count}"));
    }
    Ok(())
}
