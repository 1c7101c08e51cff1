/** A refusal: what happened, and what to do. Nothing was released. */
export class LdpSlicingError extends Error {
  name = "LdpSlicingError";
}
