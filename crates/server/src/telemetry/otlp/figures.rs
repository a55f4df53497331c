//! What `/metrics` shows, as metrics of OTLP.
//!
//! There is one registry, and it is read in the form that everybody else reads: so both say the same. Counters are
//! sums since the start, histograms have the bounds they have there.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint,
};
use posthorn_domain::Timestamp;

use super::spans::{Resource, nanos, scope, text};

/// The labels of a series, in order.
type Labels = Vec<(String, String)>;

/// What a family of series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

/// One family of series, as far as it was read.
struct Family {
    kind: Kind,
    help: String,
    series: BTreeMap<Labels, Series>,
}

#[derive(Default)]
struct Series {
    value: Option<Value>,
    sum: f64,
    count: u64,
    /// Of a histogram: up to which bound there are how many; of a summary: the quantiles.
    steps: Vec<(f64, f64)>,
}

/// All of it, and how many series there are.
pub(super) fn request(
    resource: &Resource,
    rendered: &str,
    began: Timestamp,
    now: Timestamp,
) -> (ExportMetricsServiceRequest, usize) {
    let families = read(rendered);
    let count = families.iter().map(|(_, family)| family.series.len()).sum();
    let times = (nanos(began), nanos(now));
    let metrics = families.into_iter().map(|(name, family)| metric(name, family, times)).collect();
    let scope_metrics =
        vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
    let resource_metrics = vec![ResourceMetrics {
        resource: Some(resource.clone()),
        scope_metrics,
        ..ResourceMetrics::default()
    }];
    (ExportMetricsServiceRequest { resource_metrics }, count)
}

/// The families of a page, in its order. Lines that are none of ours are passed over.
fn read(rendered: &str) -> Vec<(String, Family)> {
    let mut families: Vec<(String, Family)> = Vec::new();
    let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
    for line in rendered.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            helps.insert(name, help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else { continue };
            let kind = match kind.trim() {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                "histogram" => Kind::Histogram,
                "summary" => Kind::Summary,
                _ => continue,
            };
            let help = helps.get(name).copied().unwrap_or_default();
            let help = help.replace("\\n", "\n").replace("\\\\", "\\");
            families.push((name.to_owned(), Family { kind, help, series: BTreeMap::new() }));
        } else if let Some((name, labels, value)) = sample(line)
            && let Some((family, found)) = families.last_mut()
        {
            found.add(name.strip_prefix(family.as_str()), labels, value);
        }
    }
    families.retain(|(_, family)| !family.series.is_empty());
    families
}

/// The name, the labels and the value of a line.
fn sample(line: &str) -> Option<(&str, Labels, &str)> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (Labels::new(), rest),
    };
    // A time may follow.
    Some((name, labels, rest.split_whitespace().next()?))
}

/// The labels up to the closing brace, and what is behind it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(behind) = rest.strip_prefix('}') {
            labels.sort_unstable();
            return Some((labels, behind));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        loop {
            match chars.next()? {
                (at, '"') => {
                    rest = &quoted[at + 1..];
                    break;
                }
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        }
        labels.push((name.to_owned(), value));
    }
}

impl Family {
    /// Adds a line whose name ends so.
    fn add(&mut self, ending: Option<&str>, mut labels: Labels, value: &str) {
        let Some(ending) = ending else { return };
        let Ok(number) = value.parse::<f64>() else { return };
        let step = match self.kind {
            Kind::Histogram if ending == "_bucket" => take(&mut labels, "le"),
            Kind::Summary if ending.is_empty() => take(&mut labels, "quantile"),
            _ => None,
        };
        let series = self.series.entry(labels).or_default();
        match (self.kind, ending) {
            (Kind::Counter | Kind::Gauge, "") => {
                series.value = Some(value.parse().map_or(Value::AsDouble(number), Value::AsInt));
            }
            (Kind::Histogram, "_bucket") | (Kind::Summary, "") => {
                series.steps.extend(step.map(|step| (step, number)));
            }
            (Kind::Histogram | Kind::Summary, "_sum") => series.sum = number,
            (Kind::Histogram | Kind::Summary, "_count") => series.count = whole(number),
            _ => {}
        }
    }
}

/// Takes a label out that is a number.
fn take(labels: &mut Labels, name: &str) -> Option<f64> {
    let at = labels.iter().position(|(known, _)| known == name)?;
    labels.remove(at).1.parse().ok()
}

fn whole(number: f64) -> u64 {
    number as u64
}

fn attributes(labels: Labels) -> Vec<KeyValue> {
    labels.into_iter().map(|(name, value)| text(&name, &value)).collect()
}

fn metric(name: String, family: Family, (began, now): (u64, u64)) -> Metric {
    let Family { kind, help, series } = family;
    let numbers = |start: u64, series: BTreeMap<Labels, Series>| {
        let point = |(labels, series): (Labels, Series)| NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: start,
            time_unix_nano: now,
            value: series.value,
            ..NumberDataPoint::default()
        };
        series.into_iter().map(point).collect()
    };
    let cumulative = AggregationTemporality::Cumulative.into();
    let data = match kind {
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers(0, series) }),
        Kind::Counter => Data::Sum(Sum {
            data_points: numbers(began, series),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: series
                .into_iter()
                .map(|(labels, series)| histogram(labels, series, (began, now)))
                .collect(),
            aggregation_temporality: cumulative,
        }),
        Kind::Summary => {
            let point = |(labels, series): (Labels, Series)| SummaryDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano: began,
                time_unix_nano: now,
                count: series.count,
                sum: series.sum,
                quantile_values: series
                    .steps
                    .into_iter()
                    .map(|(quantile, value)| ValueAtQuantile { quantile, value })
                    .collect(),
                ..SummaryDataPoint::default()
            };
            Data::Summary(Summary { data_points: series.into_iter().map(point).collect() })
        }
    };
    let unit = match name.trim_end_matches("_total") {
        seconds if seconds.ends_with("_seconds") => "s",
        bytes if bytes.ends_with("_bytes") => "By",
        _ => "",
    };
    Metric { unit: unit.to_owned(), description: help, name, data: Some(data), ..Metric::default() }
}

/// There, each bucket counts all that are below its bound; here, those that are below no smaller one.
fn histogram(labels: Labels, mut series: Series, (began, now): (u64, u64)) -> HistogramDataPoint {
    series.steps.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut below = 0;
    let (mut bounds, mut counts) = (Vec::new(), Vec::new());
    for (bound, up_to) in series.steps {
        let up_to = whole(up_to);
        counts.push(up_to.saturating_sub(below));
        below = up_to;
        if bound.is_finite() {
            bounds.push(bound);
        }
    }
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: began,
        time_unix_nano: now,
        count: series.count,
        sum: Some(series.sum),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP a_total What\nis counted
# TYPE a_total counter
a_total{reason="it said \"no\", {so}",by="b\\c"} 12
a_total 9007199254740993

# TYPE b_bytes gauge
b_bytes 1.5

# TYPE c_seconds histogram
c_seconds_bucket{to="x",le="0.5"} 2
c_seconds_bucket{to="x",le="1"} 2
c_seconds_bucket{to="x",le="+Inf"} 5
c_seconds_sum{to="x"} 7.25
c_seconds_count{to="x"} 5

# TYPE d summary
d{quantile="0.5"} 3
d_sum 4
d_count 2
# TYPE nothing counter
"#;

    fn sent() -> (Vec<Metric>, usize) {
        let at = Timestamp::from_millis;
        let (request, count) = request(&Resource::default(), PAGE, at(1), at(2));
        let mut resources = request.resource_metrics;
        (resources.remove(0).scope_metrics.remove(0).metrics, count)
    }

    #[test]
    fn counters_are_sums_since_the_start_and_gauges_are_not() {
        let (metrics, count) = sent();
        assert_eq!(count, 5);
        let names: Vec<_> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["a_total", "b_bytes", "c_seconds", "d"]);
        assert_eq!(metrics[0].description, "What\nis counted");
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert!(sum.is_monotonic);
        assert_eq!(sum.aggregation_temporality, AggregationTemporality::Cumulative as i32);
        let plain = &sum.data_points[0];
        assert_eq!(plain.value, Some(Value::AsInt(9_007_199_254_740_993)));
        assert_eq!((plain.start_time_unix_nano, plain.time_unix_nano), (1_000_000, 2_000_000));
        let labelled = &sum.data_points[1];
        assert_eq!(labelled.attributes[0], text("by", "b\\c"));
        assert_eq!(labelled.attributes[1], text("reason", "it said \"no\", {so}"));
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(1.5)));
        assert_eq!((metrics[1].unit.as_str(), metrics[2].unit.as_str()), ("By", "s"));
    }

    #[test]
    fn buckets_of_a_histogram_do_not_contain_each_other() {
        let (metrics, _) = sent();
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        let point = &histogram.data_points[0];
        assert_eq!(point.explicit_bounds, [0.5, 1.0]);
        assert_eq!(point.bucket_counts, [2, 0, 3]);
        assert_eq!((point.count, point.sum), (5, Some(7.25)));
        assert_eq!(point.attributes, [text("to", "x")]);
        let Some(Data::Summary(summary)) = &metrics[3].data else { panic!("{:?}", metrics[3]) };
        let quantile = &summary.data_points[0].quantile_values[0];
        assert_eq!((quantile.quantile, quantile.value), (0.5, 3.0));
    }

    /// The real page of the real registry: every line that is a value is told.
    #[test]
    fn nothing_of_a_rendered_page_is_left_out() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new()
            .set_buckets(&[1.0, 2.0])
            .expect("buckets")
            .build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::describe_counter!("x_total", "Things");
            metrics::counter!("x_total", "kind" => "a \"b\"\n").increment(3);
            metrics::gauge!("y").set(-2.25);
            metrics::histogram!("z_seconds", "to" => "q").record(1.5);
        });
        let at = Timestamp::from_millis;
        let (request, count) = request(&Resource::default(), &handle.render(), at(1), at(2));
        assert_eq!(count, 3);
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let found = |name: &str| {
            metrics.iter().find(|metric| metric.name == name).and_then(|it| it.data.clone())
        };
        let Some(Data::Sum(sum)) = found("x_total") else { panic!("{metrics:?}") };
        assert_eq!(sum.data_points[0].value, Some(Value::AsInt(3)));
        assert_eq!(sum.data_points[0].attributes, [text("kind", "a \"b\"\n")]);
        let Some(Data::Gauge(gauge)) = found("y") else { panic!("{metrics:?}") };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(-2.25)));
        let Some(Data::Histogram(histogram)) = found("z_seconds") else { panic!("{metrics:?}") };
        assert_eq!(histogram.data_points[0].bucket_counts, [0, 1, 0]);
    }
}
