/** Downloads, and uploads to the collector: each is a new release with a fresh key. */

import { ask } from "./client.js";
import { lacksToken, send, setUpCollector } from "./collector.js";
import { $ } from "./dom.js";
import { readSettings, reportMissing } from "./settings.js";

/** @param {{opened: {id: number, name: string}[], currentId: () => number | null, onTaken: (ids: number[]) => void}} images */
export function setUpTaking({ opened, currentId, onTaken }) {
  let taken = 0;
  let most = 0;
  const progress = /** @type {HTMLProgressElement} */ ($("progress"));
  const buttons = ["download", "download-all", "send"].map((id) => /** @type {HTMLButtonElement} */ ($(id)));

  const tell = (/** @type {string} */ text, isProblem = false) => {
    $("taken").textContent = text;
    $("taken").classList.toggle("problem", isProblem);
  };

  /** @param {number[]} ids of the images  @param {number} times of the source that has most  @param {string} how what became of them  @param {boolean} [isProblem] */
  const count = (ids, times, how, isProblem) => {
    taken += ids.length;
    most = Math.max(most, times);
    onTaken(ids);
    const [noun, are] = taken === 1 ? ["release", "It is"] : ["releases", "They are"];
    const twice = most > 1 ? ` One image was released ${most} times: the epsilons of its releases add up.` : "";
    tell(`${how} ${taken} ${noun} made on this page.${twice} ${are} not recorded in the ledger of the command line.`, isProblem);
  };

  /** @param {(settings: any, options: {progress: (share: number) => void}) => Promise<void>} work */
  const run = async (work) => {
    const settings = reportMissing() ? null : readSettings();
    if (!settings) return;
    for (const button of buttons) button.disabled = true;
    progress.classList.remove("idle");
    try {
      await work(settings, { progress: (share) => (progress.value = share) });
    } catch (error) {
      tell(`Nothing was released: ${/** @type {Error} */ (error).message}.`, true);
    }
    progress.classList.add("idle");
    progress.value = 0;
    for (const button of buttons) button.disabled = false;
  };

  buttons[0].onclick = () =>
    run(async (settings, options) => {
      const id = currentId();
      if (id === null) return;
      const { name, png, card, times } = await ask("release", { id, settings }, options);
      save(name, png, "image/png");
      save(`${name}.card.json`, card, "application/json");
      count([id], times, `Downloaded ${name} and its card.`);
    });
  buttons[1].onclick = () =>
    run(async (settings, options) => {
      const [ids, names] = [opened.map(({ id }) => id), opened.map(({ name }) => name)];
      const { zip, times } = await ask("folder", { ids, names, settings }, options);
      save("releases.zip", zip, "application/zip");
      count(ids, times, "Downloaded releases.zip.");
    });
  if (COLLECTS) {
    setUpCollector();
    buttons[2].onclick = () =>
      run(async (settings, options) => {
        const id = currentId();
        if (id === null) return;
        if (lacksToken()) {
          $("token").focus();
          throw new Error("enter the token of the collector first");
        }
        const { png, card, digest, times, isNew } = await ask("releaseOnce", { id, settings }, options);
        let isProblem = false;
        const outcome = await send(png, card).then(
          async (name) => {
            await ask("stored", { digest });
            return name ? `Sent; the collector stored it as ${name}.` : "The collector has stored this release already.";
          },
          (error) => {
            isProblem = true;
            const what = error.isUnanswered ? "Not confirmed" : "Sent, but not stored";
            return `${what}: ${error.message}.${error.isFinal ? "" : " If you send it again, it is the same release."}`;
          },
        );
        count(isNew ? [id] : [], times, outcome, isProblem); // it left this page in either case
      });
  }
}

/** @param {string} name  @param {BlobPart} content  @param {string} type */
function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
