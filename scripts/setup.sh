# Shared by ./run and ./check: installs what is missing and builds. Sourced, not run.
#
# Nothing here leaves a half-made state: packages are installed by one apt-get call, a Python environment counts only once its
# stamp is written, and an interrupted build goes on where it stopped.

if [ -t 2 ] && [ -z "${CI:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold= plain=; fi
say() { printf '%s%s%s\n' "$bold" "$*" "$plain" >&2; }

# die CODE MESSAGE...
die() {
  local code=$1
  shift
  printf 'sluice: %s\n' "$@" >&2
  exit "$code"
}

# Package names of a requirements/*.apt file.
package_list() { sed 's/#.*//' "$@" | xargs; }

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# ensure_packages FILE...: installs the Debian packages listed in the files, if any is missing.
ensure_packages() {
  command -v dpkg-query >/dev/null ||
    { say "No dpkg here: assuming that these are present: $(package_list "$@")"; return 0; }
  local missing=() package
  for package in $(package_list "$@"); do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  say "Installing: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die 2 "packages are missing and this user cannot install them; as root, run:" "  $install"
    as_root=(sudo)
  fi
  # Package lists may be absent on a fresh machine or too old: refresh them once, only now that something is needed.
  # A separate lists folder is not used, so that later calls work offline.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update >&2 ||
    say "The package lists could not be refreshed; trying with those at hand."
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install >&2 ||
    die 2 "installing packages failed; see the lines above. To try by hand, as root:" "  apt-get update && $install"
}

# ensure_venv: a Python environment in .venv with requirements/check.txt, made anew when that file changed.
ensure_venv() {
  local stamp=.venv/complete
  if [ -f "$stamp" ] && cmp -s "$stamp" requirements/check.txt; then return 0; fi
  say "Setting up the Python environment of the tests (.venv)"
  rm -rf .venv
  python3 -m venv .venv >&2 || die 2 "cannot make a Python environment" "install python3-venv, or remove .venv and try again"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/check.txt >&2 ||
    die 2 "cannot install the Python packages of requirements/check.txt" "this step needs the network once; then run ./check again"
  cp requirements/check.txt "$stamp"
}

# build PRESET [TARGET...]: configures when needed and builds. The log is shown only when it fails.
build() {
  local preset=$1 folder=build/$1 log=build/$1/build.log
  shift
  mkdir -p "$folder"
  [ -f "$folder/build.ninja" ] || say "Configuring the build ($preset)"
  if [ ! -f "$folder/build.ninja" ] || [ CMakePresets.json -nt "$folder/build.ninja" ]; then
    cmake --preset "$preset" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die 3 "configuring failed; the whole log: $log"; }
  fi
  # A dry run tells whether there is anything to do, so that a second ./run is quiet and starts at once.
  if ! ninja -C "$folder" -n "$@" 2>/dev/null | grep -q 'no work to do'; then
    say "Building ($preset); the first time takes some minutes"
    if [ -t 2 ] && [ -z "${CI:-}" ]; then
      NINJA_STATUS='[%f/%t] ' ninja -C "$folder" "$@" 2>&1 | tee "$log" | shown_progress
      [ "${PIPESTATUS[0]}" -eq 0 ] || { tail -n 30 "$log" >&2; die 3 "the build failed; the whole log: $log"; }
    else
      ninja -C "$folder" "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die 3 "the build failed; the whole log: $log"; }
    fi
  fi
}

# Keeps ninja's counter on one line of the terminal.
shown_progress() {
  local line width=${COLUMNS:-100}
  while IFS= read -r line; do
    case $line in '['*) printf '\r\e[K%.*s' "$width" "$line" >&2 ;; esac
  done
  printf '\r\e[K' >&2
}
