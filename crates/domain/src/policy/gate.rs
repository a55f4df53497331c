//! What the answer of an open gate says.

use serde_json::{Number, Value};

use super::GateExpect;

impl GateExpect {
    /// Whether an answer says what it must.
    pub fn is_met(&self, answer: &Value) -> bool {
        answer.pointer(&self.pointer).is_some_and(|found| {
            same(found, &self.equals)
                || (self.text_is_fine && found.as_str() == Some(&self.equals.to_string()))
        })
    }
}

/// Equal as JSON, where a number is its value however it is written: `2`, `2.0` and `2e0` are one. A text
/// is never a number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a.as_f64() == b.as_f64(),
        _ => false,
    }
}

/// The number when it is a whole one. Large ones are compared exactly, not as floating point.
fn whole(number: &Number) -> Option<i128> {
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    let float = number.as_f64()?;
    // Beyond this, what is written as floating point is no exact number anyway.
    let exact = float.fract() == 0.0 && float.abs() < 1e30;
    exact.then_some(float as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, equals: &str, text_is_fine: bool, expected: bool) {
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let expect =
            GateExpect { pointer: "/Status".to_owned(), equals: read(equals), text_is_fine };
        assert_eq!(expect.is_met(&read(answer)), expected, "{answer} against {equals}");
    }

    #[test]
    fn a_number_is_its_value_however_it_is_written() {
        for two in ["2", "2.0", "2e0", "20e-1", "2.00"] {
            check(&format!("{{\"Status\":{two}}}"), "2", false, true);
            check("{\"Status\":2}", two, false, true);
        }
        for other in ["\"2\"", "2.5", "-2", "3", "null", "true", "[2]", "2.0000000001", "2e1"] {
            check(&format!("{{\"Status\":{other}}}"), "2", false, false);
        }
        check("{\"Status\":\"2\"}", "2", true, true);
        check("{\"Status\":\"2.0\"}", "2", true, false);
        check("{}", "2", true, false);
        check("{\"Status\":[1.0,{\"a\":2}]}", "[1,{\"a\":2.0}]", false, true);
        check("{\"Status\":9007199254740993}", "9007199254740992.0", false, false);
        check("{\"Status\":18446744073709551615}", "18446744073709551615", false, true);
        check("{\"Status\":1e300}", "1e300", false, true);
    }
}
