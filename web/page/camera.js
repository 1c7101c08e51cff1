/** An image from the camera. */

import { readBack } from "./decode.js";
import { $ } from "./dom.js";

/** @param {(files: any[]) => void} add */
export function setUpCamera(add) {
  const dialog = /** @type {HTMLDialogElement} */ ($("camera-dialog"));
  const video = /** @type {HTMLVideoElement} */ ($("video"));
  const button = $("camera");
  if (!navigator.mediaDevices?.getUserMedia) button.hidden = true;
  const stop = () => {
    for (const track of /** @type {MediaStream | null} */ (video.srcObject)?.getTracks() ?? []) track.stop();
    video.srcObject = null;
  };
  button.onclick = async () => {
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      dialog.showModal();
      await video.play();
    } catch {
      button.textContent = "No camera, or no permission to use it";
    }
  };
  $("shoot").onclick = () => {
    const pixels = readBack(video, video.videoWidth, video.videoHeight);
    dialog.close();
    add([{ name: "The camera image", pixels }]);
  };
  $("camera-close").onclick = () => dialog.close();
  dialog.onclose = stop;
}
