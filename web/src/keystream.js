/**
 * The keystream of one image: AES-256-CTR from WebCrypto, in strips. Counters from 0 serve the draws. Counters from 2^64
 * serve the ties; the kernel encrypts those, because WebCrypto cannot address single blocks.
 */

export const KEY_BYTES = 32;
const AES_BLOCK = 16;

/** @returns {Uint8Array<ArrayBuffer>} a new key from the operating system */
export const freshKey = () => crypto.getRandomValues(new Uint8Array(KEY_BYTES));

export class Keystream {
  /** @type {CryptoKey} */ #key;
  #done = 0;
  #zeros = new Uint8Array(0);

  /** @param {CryptoKey} key */
  constructor(key) {
    this.#key = key;
  }

  /** @param {Uint8Array<ArrayBuffer>} bytes  @returns {Promise<Keystream>} */
  static async of(bytes) {
    return new Keystream(await crypto.subtle.importKey("raw", bytes, "AES-CTR", false, ["encrypt"]));
  }

  /** @param {number} size a multiple of 16  @returns {Promise<Uint8Array>} the next bytes for the draws */
  async next(size) {
    if (this.#zeros.length < size) this.#zeros = new Uint8Array(size);
    const counter = new Uint8Array(AES_BLOCK);
    new DataView(counter.buffer).setBigUint64(8, BigInt(this.#done / AES_BLOCK));
    this.#done += size;
    const zeros = this.#zeros.subarray(0, size);
    const bytes = await crypto.subtle.encrypt({ name: "AES-CTR", counter, length: 64 }, this.#key, zeros);
    if (bytes.byteLength !== size) throw new Error("the keystream is shorter than requested"); // never a mask of zeros
    return new Uint8Array(bytes);
  }
}
