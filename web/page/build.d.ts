// What web/build.mjs provides.
declare module "*.wasm" {
  const bytes: Uint8Array<ArrayBuffer>;
  export default bytes;
}
declare module "worker:*" {
  const source: string;
  export default source;
}
declare const COLLECTS: boolean; // whether this build can send releases to the collector it came from
