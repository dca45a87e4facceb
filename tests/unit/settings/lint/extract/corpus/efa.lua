-- Lmod
local root = "/opt/efa"
setenv("FI_PROVIDER", "efa")
pushenv('NCCL_NET', 'AWS Libfabric')
setenv("EFA_HOME", pathJoin(root, "lib"))
prepend_path("PATH", root)
setenv("RDMAV_FORK_SAFE", 1)
