"""What the API says of vector stores."""

from moorage.errors.kinds import ApiError, bad_request, not_found


def vector_store_not_found(store_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Vector store with id '{store_id}' not found.", param=param)


def vector_store_expired(store_id: str, *, param: str | None = None) -> ApiError:
    return bad_request(
        f"Vector store '{store_id}' has expired, and its files are no longer in it. Make another one, with a longer 'expires_after'.",
        param=param,
        code="vector_store_expired",
    )


def vector_store_file_not_found(file_id: str, store_id: str) -> ApiError:
    return not_found(f"No file found with id '{file_id}' in vector store '{store_id}'.")


def vector_batch_not_found(batch_id: str, store_id: str) -> ApiError:
    return not_found(f"No file batch found with id '{batch_id}' in vector store '{store_id}'.")


def too_many_vector_stores(stores_max: int) -> ApiError:
    return bad_request(f"You have {stores_max} vector stores, the most there may be. Delete one that is not needed any more.")


def too_many_vector_store_files(files_max: int) -> ApiError:
    return bad_request(f"A vector store holds at most {files_max} files. Remove some, or use another store.", code="too_many_files")


def vector_store_full(bytes_max: int) -> ApiError:
    return bad_request(
        f"The vector store takes {bytes_max} bytes or more, the most that one may. Remove files, or use another store.",
        code="vector_store_full",
    )


def vector_store_busy(store_id: str) -> ApiError:
    message = f"Vector store '{store_id}' is being changed by too many requests at once. Please retry."
    return ApiError(409, message, code="vector_store_busy")
