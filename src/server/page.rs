//! The page beside the API: the folder that `web/build` made, its engine being this server's. The
//! files are open to everyone; what they ask the API for needs a key as ever.

use super::error::json_response;
use super::routes::unknown_route;
use axum::Router;
use axum::handler::HandlerWithoutStateExt;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use serde_json::json;
use std::path::Path;
use tower_http::services::ServeDir;

/// What the page reads first: where its engine is.
const SETTINGS: &str = "/page.json";

/// Serves the files of `folder` where no route of the API answers.
pub(super) fn add<S: Clone + Send + Sync + 'static>(router: Router<S>, folder: &Path) -> Router<S> {
    // What is not asked for with GET is for the API, and none of its routes.
    let files = ServeDir::new(folder)
        .call_fallback_on_method_not_allowed(true)
        .fallback(unknown_route.into_service());
    let files = Router::new().fallback_service(files).layer(map_response(fresh));
    let settings = async || json_response(StatusCode::OK, &json!({"remote": "."}));
    router.route(SETTINGS, get(settings)).fallback_service(files)
}

/// A new build is seen at once: browsers ask again, and are told when nothing changed.
async fn fresh(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
