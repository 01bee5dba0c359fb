// Refusals of the API: an HTTP status and a body in OpenAI's form. Thrown while a request is read, caught by the
// router.
#pragma once

#include <stdexcept>
#include <string>

#include "http/message.h"

namespace sluice::server {

class ApiError : public std::runtime_error {
 public:
  // `param`: the field at fault, `code`: a word for programs; both may be empty.
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_;
  std::string code_;
};

ApiError shutting_down();

// {"error": {"message", "type", "param", "code"}}; the type follows from the status, and so does Retry-After.
http::Response error_response(const ApiError& error);
// The same for the exception that is being handled, whatever it is. Only from within a catch.
http::Response current_error_response() noexcept;
// The same object as text, for the middle of a stream.
std::string error_json(const ApiError& error);

}  // namespace sluice::server
