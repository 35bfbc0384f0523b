// The functions of gRPC and of its libgpr, which only a server with a grpc_port uses: they are loaded by the first
// (base/lazy.h). A function that is missing here is an undefined reference when Parley is linked.
#include "ws/kserve/grpc/grpc_lazy.h"

_Static_assert(sizeof GRPC_SONAME > 1, "the Makefile finds the name in libgrpc.so");
struct lazy_library grpc_lazy = {.soname =
                                     GRPC_SONAME}; // it brings libgpr, and dlsym looks there too

LAZY_FUNCTION(grpc_lazy, grpc_byte_buffer_destroy);
LAZY_FUNCTION(grpc_lazy, grpc_byte_buffer_reader_destroy);
LAZY_FUNCTION(grpc_lazy, grpc_byte_buffer_reader_init);
LAZY_FUNCTION(grpc_lazy, grpc_byte_buffer_reader_readall);
LAZY_FUNCTION(grpc_lazy, grpc_call_cancel);
LAZY_FUNCTION(grpc_lazy, grpc_call_cancel_with_status);
LAZY_FUNCTION(grpc_lazy, grpc_call_details_destroy);
LAZY_FUNCTION(grpc_lazy, grpc_call_details_init);
LAZY_FUNCTION(grpc_lazy, grpc_call_error_to_string);
LAZY_FUNCTION(grpc_lazy, grpc_call_get_peer);
LAZY_FUNCTION(grpc_lazy, grpc_call_start_batch);
LAZY_FUNCTION(grpc_lazy, grpc_call_unref);
LAZY_FUNCTION(grpc_lazy, grpc_completion_queue_create_for_next);
LAZY_FUNCTION(grpc_lazy, grpc_completion_queue_destroy);
LAZY_FUNCTION(grpc_lazy, grpc_completion_queue_next);
LAZY_FUNCTION(grpc_lazy, grpc_completion_queue_shutdown);
LAZY_FUNCTION(grpc_lazy, grpc_empty_slice);
LAZY_FUNCTION(grpc_lazy, grpc_init);
LAZY_FUNCTION(grpc_lazy, grpc_insecure_server_credentials_create);
LAZY_FUNCTION(grpc_lazy, grpc_metadata_array_destroy);
LAZY_FUNCTION(grpc_lazy, grpc_metadata_array_init);
LAZY_FUNCTION(grpc_lazy, grpc_raw_byte_buffer_create);
LAZY_FUNCTION(grpc_lazy, grpc_resource_quota_arg_vtable);
LAZY_FUNCTION(grpc_lazy, grpc_resource_quota_create);
LAZY_FUNCTION(grpc_lazy, grpc_resource_quota_resize);
LAZY_FUNCTION(grpc_lazy, grpc_resource_quota_unref);
LAZY_FUNCTION(grpc_lazy, grpc_server_add_channel_from_fd);
LAZY_FUNCTION(grpc_lazy, grpc_server_cancel_all_calls);
LAZY_FUNCTION(grpc_lazy, grpc_server_create);
LAZY_FUNCTION(grpc_lazy, grpc_server_credentials_release);
LAZY_FUNCTION(grpc_lazy, grpc_server_destroy);
LAZY_FUNCTION(grpc_lazy, grpc_server_register_completion_queue);
LAZY_FUNCTION(grpc_lazy, grpc_server_request_call);
LAZY_FUNCTION(grpc_lazy, grpc_server_shutdown_and_notify);
LAZY_FUNCTION(grpc_lazy, grpc_server_start);
LAZY_FUNCTION(grpc_lazy, grpc_shutdown_blocking);
LAZY_FUNCTION(grpc_lazy, grpc_slice_from_copied_buffer);
LAZY_FUNCTION(grpc_lazy, grpc_slice_from_copied_string);
LAZY_FUNCTION(grpc_lazy, grpc_slice_from_static_string);
LAZY_FUNCTION(grpc_lazy, grpc_slice_new);
LAZY_FUNCTION(grpc_lazy, grpc_slice_str_cmp);
LAZY_FUNCTION(grpc_lazy, grpc_slice_unref);
LAZY_FUNCTION(grpc_lazy, grpc_version_string);
LAZY_FUNCTION(grpc_lazy, gpr_free);
LAZY_FUNCTION(grpc_lazy, gpr_inf_future);
LAZY_FUNCTION(grpc_lazy, gpr_set_log_function);
