// A throwaway job key on its way to a worker: as the text of a key file, in secret memory, through a pipe.
#pragma once

#include "sealring/session/identity.h"

namespace sealring {

/// "sealring-job-key-1 <base64>\n", as JobKey::parse takes it.
SecretBytes job_key_text(const JobKey& key);
/// Reads it from an inherited descriptor and closes that. Errors: KEY_FILE.
Result<JobKey> read_job_key(int descriptor);

}  // namespace sealring
