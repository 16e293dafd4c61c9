//! The paths of the admin interface.
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clockwork_placement::REPLICAS_MAX;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::control::{ControlError, PlexControl};
use super::types::{Assign, Failure, FileName};
use super::{BODY_BYTES_MAX, PATH_BYTES_MAX, REASON_BYTES_MAX, guard, handle_bytes, metrics, page};

/// Exceptions and hot files in one answer, unless the request says otherwise, and at most.
const ROWS_DEFAULT: usize = 100;
const ROWS_MAX: usize = 10_000;

/// Periods in one answer, at most: two months of hours.
const PERIODS_MAX: usize = 1_500;

/// All paths of the admin interface, answered by `control`.
pub fn routes<C: PlexControl>(control: Arc<C>) -> Router {
    Router::new()
        .route("/", get(status_page::<C>))
        .route("/v1/status", get(status::<C>))
        .route("/v1/exceptions", get(exceptions::<C>).put(assign::<C>).delete(unassign::<C>))
        .route("/v1/stores/{name}/drain", post(drain::<C>))
        .route("/v1/stores/{name}/undrain", post(undrain::<C>))
        .route("/v1/weights", get(weights::<C>).delete(reset_weights::<C>))
        .route("/v1/periods", get(periods::<C>))
        .route("/v1/hot", get(hot::<C>))
        .route("/v1/control", get(control_state::<C>))
        .route("/v1/decisions", get(decisions::<C>))
        .route("/v1/report", get(report_json::<C>))
        .route("/report", get(report_page::<C>))
        .route("/metrics", get(metrics_text::<C>))
        .fallback(async || failure(StatusCode::NOT_FOUND, "unknown_path", "no such path".to_owned()))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn(guard::guard))
        .with_state(control)
}

/// An answer that is not a success.
pub(super) fn failure(status: StatusCode, error: &'static str, message: String) -> Response {
    (status, Json(Failure { error: error.into(), message })).into_response()
}

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let (status, kind) = match &self {
            Self::UnknownStore { .. } => (StatusCode::NOT_FOUND, "unknown_store"),
            Self::UnknownFile { .. } => (StatusCode::NOT_FOUND, "unknown_file"),
            Self::NotAssigned { .. } => (StatusCode::NOT_FOUND, "not_assigned"),
            Self::ExceptionsFull { .. } => (StatusCode::CONFLICT, "exceptions_full"),
            Self::LastStore { .. } => (StatusCode::CONFLICT, "last_store"),
            Self::NoStore { .. } => (StatusCode::SERVICE_UNAVAILABLE, "no_store"),
            Self::History { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "history"),
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "shutting_down"),
        };
        failure(status, kind, self.to_string())
    }
}

/// A request that does not say what it wants.
struct BadRequest(String);

impl IntoResponse for BadRequest {
    fn into_response(self) -> Response {
        failure(StatusCode::BAD_REQUEST, "bad_request", self.0)
    }
}

type Asked<T> = Result<Query<T>, QueryRejection>;

fn asked<T: DeserializeOwned>(query: Asked<T>) -> Result<T, BadRequest> {
    query.map(|Query(query)| query).map_err(|rejection| BadRequest(rejection.body_text()))
}

fn json<T: serde::Serialize>(result: Result<T, ControlError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn status<C: PlexControl>(State(control): State<Arc<C>>) -> Response {
    Json(control.status().await).into_response()
}

async fn control_state<C: PlexControl>(State(control): State<Arc<C>>) -> Response {
    Json(control.control().await).into_response()
}

async fn decisions<C: PlexControl>(
    State(control): State<Arc<C>>,
    query: Asked<Last>,
) -> Result<Response, BadRequest> {
    let last = asked(query)?.last.unwrap_or(24).clamp(1, PERIODS_MAX);
    Ok(Json(control.decisions(last).await).into_response())
}

async fn status_page<C: PlexControl>(State(control): State<Arc<C>>) -> Response {
    page::respond(&control.status().await)
}

async fn metrics_text<C: PlexControl>(State(control): State<Arc<C>>) -> Response {
    let text = metrics::encode(&control.status().await);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

async fn exceptions<C: PlexControl>(
    State(control): State<Arc<C>>,
    query: Asked<Page>,
) -> Result<Response, BadRequest> {
    let Page { after, limit } = asked(query)?;
    let after = after.map(|after| handle_bytes(&after).ok_or_else(|| not_a_handle(&after))).transpose()?;
    Ok(json(control.exceptions(after, rows(limit)).await))
}

async fn assign<C: PlexControl>(
    State(control): State<Arc<C>>,
    body: Result<Json<Assign>, JsonRejection>,
) -> Result<Response, BadRequest> {
    let Json(assign) = body.map_err(|rejection| BadRequest(rejection.body_text()))?;
    if assign.reason.len() > REASON_BYTES_MAX {
        let found = assign.reason.len();
        return Err(BadRequest(format!("a reason of {found} bytes is too long; at most {REASON_BYTES_MAX}")));
    }
    check_file(&assign.file)?;
    check_stores(&assign)?;
    Ok(json(control.assign(assign).await))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneFile {
    path: Option<String>,
    handle: Option<String>,
}

async fn unassign<C: PlexControl>(
    State(control): State<Arc<C>>,
    query: Asked<OneFile>,
) -> Result<Response, BadRequest> {
    let file = match asked(query)? {
        OneFile { path: Some(path), handle: None } => FileName::Path(path),
        OneFile { path: None, handle: Some(handle) } => FileName::Handle(handle),
        _ => return Err(BadRequest("name one file, with path=... or with handle=...".to_owned())),
    };
    check_file(&file)?;
    Ok(json(control.unassign(file).await))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Force {
    #[serde(default)]
    force: bool,
}

async fn drain<C: PlexControl>(
    State(control): State<Arc<C>>,
    Path(name): Path<String>,
    query: Asked<Force>,
) -> Result<Response, BadRequest> {
    let Force { force } = asked(query)?;
    Ok(json(control.drain(name, force).await))
}

async fn undrain<C: PlexControl>(State(control): State<Arc<C>>, Path(name): Path<String>) -> Response {
    json(control.undrain(name).await)
}

async fn weights<C: PlexControl>(State(control): State<Arc<C>>) -> Response {
    Json(control.weights().await).into_response()
}

async fn reset_weights<C: PlexControl>(State(control): State<Arc<C>>) -> Response {
    json(control.reset_weights().await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    last: Option<usize>,
}

async fn periods<C: PlexControl>(
    State(control): State<Arc<C>>,
    query: Asked<Last>,
) -> Result<Response, BadRequest> {
    let last = asked(query)?.last.unwrap_or(24).clamp(1, PERIODS_MAX);
    Ok(json(control.periods(last).await))
}

async fn report_json<C: PlexControl>(
    State(control): State<Arc<C>>,
    query: Asked<Last>,
) -> Result<Response, BadRequest> {
    let last = asked(query)?.last.unwrap_or(24).clamp(1, PERIODS_MAX);
    Ok(json(control.report(last).await))
}

async fn report_page<C: PlexControl>(
    State(control): State<Arc<C>>,
    query: Asked<Last>,
) -> Result<Response, BadRequest> {
    let last = asked(query)?.last.unwrap_or(24).clamp(1, PERIODS_MAX);
    Ok(match control.report(last).await {
        Ok(report) => Html(crate::report::page(&report)).into_response(),
        Err(error) => error.into_response(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hot {
    last: Option<usize>,
    limit: Option<usize>,
    store: Option<String>,
}

async fn hot<C: PlexControl>(
    State(control): State<Arc<C>>,
    query: Asked<Hot>,
) -> Result<Response, BadRequest> {
    let Hot { last, limit, store } = asked(query)?;
    let last = last.unwrap_or(1).clamp(1, PERIODS_MAX);
    Ok(json(control.hot(last, rows(limit), store).await))
}

fn rows(limit: Option<usize>) -> usize {
    limit.unwrap_or(ROWS_DEFAULT).clamp(1, ROWS_MAX)
}

fn check_file(file: &FileName) -> Result<(), BadRequest> {
    match file {
        FileName::Path(path) if !path.starts_with('/') => Err(BadRequest(format!(
            "{path:?} is not a path: begin with that of an export, as in /export/file"
        ))),
        FileName::Path(path) if path.len() > PATH_BYTES_MAX => {
            Err(BadRequest(format!("a path of {} bytes is too long; at most {PATH_BYTES_MAX}", path.len())))
        }
        FileName::Handle(handle) if handle_bytes(handle).is_none() => Err(not_a_handle(handle)),
        FileName::Path(_) | FileName::Handle(_) => Ok(()),
    }
}

fn check_stores(assign: &Assign) -> Result<(), BadRequest> {
    let stores: Vec<&String> = std::iter::once(&assign.store).chain(&assign.also).collect();
    if let Some(twice) = (1..stores.len()).find(|at| stores[..*at].contains(&stores[*at])) {
        return Err(BadRequest(format!("{} is named twice; name each store once", stores[twice])));
    }
    if stores.len() > REPLICAS_MAX {
        let found = stores.len();
        return Err(BadRequest(format!("{found} stores are too many for one file; at most {REPLICAS_MAX}")));
    }
    Ok(())
}

fn not_a_handle(text: &str) -> BadRequest {
    BadRequest(format!("{text:?} is not a handle: 2 to 128 hexadecimal digits, two for each byte"))
}
