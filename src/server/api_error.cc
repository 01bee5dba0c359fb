#include "server/api_error.h"

#include <new>

#include "core/error.h"
#include "core/json.h"

namespace sluice::server {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

int status_of(const Error& e) {
  if (e.code() == ErrorCode::usage || e.code() == ErrorCode::bad_input) return 400;
  return e.code() == ErrorCode::resources ? 503 : 500;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

std::string error_json(const ApiError& e) {
  return Json(Json::Object{{"error", Json(Json::Object{{"message", Json(std::string(e.what()))},
                                                       {"type", Json(error_type(e.status()))},
                                                       {"param", text_or_null(e.param())},
                                                       {"code", text_or_null(e.code())}})}})
      .dump();
}

ApiError shutting_down() { return {503, "the server is shutting down", "", "shutting_down"}; }

http::Response error_response(const ApiError& e) {
  http::Response response;
  response.status = e.status();
  response.body = error_json(e);
  if (e.status() == 429 || e.status() == 503) response.headers.add("Retry-After", "1");
  if (e.status() == 401) response.headers.add("WWW-Authenticate", "Bearer");
  return response;
}

http::Response current_error_response() noexcept {
  try {
    throw;
  } catch (const ApiError& e) {
    return error_response(e);
  } catch (const Error& e) {
    return error_response(ApiError(status_of(e), e.what()));
  } catch (const std::bad_alloc&) {
    return error_response(ApiError(503, "out of memory"));
  } catch (const std::exception& e) {
    return error_response(ApiError(500, std::string("internal error: ") + e.what()));
  } catch (...) {
    return error_response(ApiError(500, "internal error"));
  }
}

}  // namespace sluice::server
